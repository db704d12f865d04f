"""Tokens of non-ASCII and control characters, by a cost for each character.

A byte-pair vocabulary has whole words of only a few languages. In all other scripts, and for signs, a text takes about
as many tokens as its characters do one by one: from one token (a common Chinese character) to four (a cuneiform sign).
Where a vocabulary does join characters to words, the factor of the Unicode block says by how much.
"""

from __future__ import annotations

import base64
import sys
import zlib
from functools import cache, lru_cache
from typing import Final

__all__ = ["CONTROLS", "tokens_one_by_one"]

CONTROLS: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\n\v\f\r")
"""Control characters other than white space."""

# The larger of the cl100k_base and o200k_base counts of each single character of the basic plane. A high surrogate has
# the count of its 1,024 characters. Derived by tools/derive_scripts.py.
_ALONE: Final = (
    "c-rk<*_N9y4DHqQ|G&AX$%Gg%-n7{u_a&1Cu&wn<vH+Y19moEg%ggrn!0WQt*Z)6lUsW!r_s{VA(D#*}&p1p5@A;hPi}V-A>vwnG{}^;$ePugZu8"
    "<jEJ_>{XXFM>`T<UZEFfN^>;KjQFgxc;)dujRbL{*$I8G#=*-h}&AeyQ?lV02t-f@{sa`#Z1EMHB(*7X;T0j33)!{k+;-vRsp~xv4q-+Kr9fAz(3"
    "^Bn5fvg%E&2_NPI<5#n!AFD>ZrY<w4W7!ugC8S%}j+`NedP*Gz3-(U;ySw7bUJk0!xZ-AMde$Dl)Xjk9=SqD92c4YiSdJx}G$V{x-;7%*=ySt<La"
    "QyE-1q%IgBiaUy*5nhqIWLgn+&K4Yif|zbzaGP(`#kIUADup_o4=KGz%df^iR~awBqf`+<pRYrr(pfExY<-E)NDb$&IB3>(%)shPs9JWv!8<WCqZ"
    "Ji-V4G7Ai!8Y4&C)WkW*Hjd(fS7D%6B{<NwvuI8BSE>%S2AKk)yP@xOEaKgNA^K;Zvp!s?ZDz}Nph7v!VS8^l&3n%0VbK2uU{fAqGuf_+M=m~leH"
    "+ikYO{-oeEsY==EUw^AnwyTmWlGqVc@bf+D51wMjD5kA8vB>|&sx9tBv5~|0Kl1;9|3fQ<4G2C7{2%x~bigwEN<paL;aF$j|KO#-|FMyQ{{#QW2>"
    "c%-@P7~f$G5EeQ`(JVYl&}jv{U-@&_>{@lnzY=g4mZ$rX`U$S1BHg3eye*yUE}@3#2Vwij6hUQxSRS9EbY#rBX_MPnXjKI%XqKxeuZIcgOjESm)o"
    "%)vX5x-nawVHa;-z<x;Hl$aOzNl_`ZwsVONKfh1#Ae-CuZ{84jtc0a_(N)j!Ts83|{-%iKobZN5LDCy_Yd{CVD)ooK*8mUDl7>UbJ^}hM}8Jg9Df"
    "|9>f)4JfDdpHpmg68=^Km4%Q4@D)pw`Dd>3!o>dxh0|CIDx%>%CS%n*{Mu_2<Q)25aW`QWY+&*c?Ia@W8|*Eg^og>Utg8uT~q3=Cac}2&>$<~Toz"
    "gV{C}H|T7;P}Qs%i(LEa5D>3WWwt9~--Lz0C)fyrQ;9)Oi|av(xT)XXNIZCd3BCHxOzrs!DXUKWj10qN-vwDoV#2{8Kk0&VsKiV6u0h+T}O1{c!d"
    "bM`KS%Vs_>`(pkB=l{oMfYaMRdg#*>0IIotXpCfCe|s6{>61j&$efu(0%a<kTL(3f9+f0Oal@e~H{6IRgyzb%UxM)$1^>I{`IG1W4I4yw;D4TEG}"
    "&|X2Lp!Z#DDuv_j^_t8wCDZ*%=nqoob(<t6`iXGCPrjz_cGvssZAXb~yi!hRv4f|5pL1cf<eVF}<<KiuVS1_y6yOk2-b?V)~C$|L@WNuRG3Fs2m$"
    "{c7z#>Cf5HgF+^nt0_PYEin0Ym|3Qy-xaJXpCH-OIe|6<?S&Rn9m0tvm(5!{d7P;TLKuJ*fH_X?C4MxJWUOtL?q7S;;=Ai!}xe~5c9Hx-){*y6eA"
    "i)QaI{%<GVFB77SAe;0VkrsO%P(^0BOVgNfo%Uh5B%@#Zu7YVzK@?Ue%QkSv(0}s{I40?aX{|Y?cAq$|HG>BcCuQA;`#qp)rv`Vx-$!)Qe)W|y~S"
    "{95!O~2ve&Y8f^hx6Zgl?0E*BsN2Xut}xx~ZKWYDCtISooUb`Gxu(ne!d9^UUlNeAegV72%~KG6nlz$ufS`X2c}OIayUG#h}xY3do2Nz3_Tek{ck"
    "|8MU)5b=NJ_NfK)|Hk;8X4?SahxFqAKCy+oX&=Y~DQ54~)|?(!08eeACtanVK_TMgE%lvWwCWEl{11itFV?o;DsOAx7ke8ruAk#=1SI!g(!qzKk&"
    "E~L-C~e7y`ulW{&sR*G;g{uZom9^IQsuDg0N$qPvx8F{~xQixKs51@49pJ|DR_r(f|Kuv|WuxC?uoxx~`2!y?WaomcsZ*0MxMUVXmFcZ%jIPCwHA"
    "ii$VuD>uIK*P(S}aWB!5eW5=3k4+XpOu>s8e@Q&YUrK(#`w|e9MmNjVFI5C-7)@TI&ANIWm?Vow|+~_Gv*yumbG(G&6qkfg@?W(eV60qL__WkNNY"
    "@INe|HmY{$h$0G%73vuCa}{>&ft=}_R+a~0*?~(H#&5<jF}JouNOZ<Paq2l{u1<Tv4{Us@=a%<|7f$+ro$_t8`RcE575^fHKTD|%m2aXd0KiG6X@"
    "Msd<h+Uw!01$%nWA!sFeRNoF8u4=b@O#0`V6k`)hE*M3#QxgWt=(&w&3q`kG5BZ~V`-OAP$4%0H0jpUD5;0KbpWKimJGWaNiyZ})p)#1c2p|M$>g"
    "b^CWW7313f&k6r?u%Ync$x{9#Fo{IWG5Y_F<Nv<{<8$5U^)X_^m}C5j5hKQ9$FlxXod1tFcC7PO_&<2**{hE8|MvJl&i{K)A<qBbiMBzb;FA?}-C"
    "g?sh3;8g{<!&9=K22^f&XI!{tsRX{2%x~@PFX{hY3^k{|`R-S*W;N82@uirWeQm+slbwXN3==-od8v6u9?0Fme6;KgT+k<p"
)
# The percentage of its characters' sum that a text takes, by block. The last matching entry wins. Measured over Article
# 1 of the Universal Declaration of Human Rights, words of everyday texts in 32 languages and names of the CLDR in 307.
# Accented Latin letters cost more than on their own, because they break up the word.
_BLOCKS: Final = (
    (0x0000, 0x10000, 103),
    (0x0000, 0x0080, 110),  # controls
    (0x001B, 0x001C, 180),  # the escape that begins a colour of a terminal
    (0x0080, 0x0250, 210),  # Latin-1, Latin Extended-A and B
    (0x0300, 0x0370, 120),  # marks put on letters
    (0x0370, 0x0400, 95),  # Greek
    (0x0460, 0x0530, 100),  # its letters of other languages, and of older times
    (0x0530, 0x0590, 108),  # Armenian
    (0x0590, 0x0600, 100),  # Hebrew
    (0x0600, 0x0680, 80),  # Arabic
    (0x0610, 0x0660, 100),  # its vowel signs
    (0x0680, 0x0700, 105),  # its letters of other languages
    (0x0900, 0x0A00, 93),  # Devanagari, Bengali
    (0x0B80, 0x0C00, 93),  # Tamil
    (0x1E00, 0x1F00, 100),  # Latin Extended Additional
    (0x2500, 0x25A0, 90),  # box drawings and blocks: often in runs
    (0x3040, 0x3100, 100),  # kana
    (0x4E00, 0xA000, 100),  # Han
    (0xAC00, 0xD7A4, 95),  # Hangul
    (0xD83C, 0xD83F, 95),  # emoji: their high surrogates
)
# Cyrillic letters in hundredths of a token. The vocabularies join the frequent letters of Russian to words, and hardly
# any others. Fitted by hand against the vocabularies, on catalogs of translated programs in 15 languages and on random
# letters. A row has 16 code points.
_CYRILLIC: Final = (
    0x0400,
    """
 60  60  60  60  60  60  91  60  73  60  60  60  60  60  60  60
 58 154 119 132 154  85 163 140  93 161 133 134 111 102  84 110
114 121 122 145 153 153 157 148 155 152 160 165 157 160 163 149
 68 188  17 188  70   5 144 130  39  81  59   5  65   5   5  12
 38   6  34 250 162 146 207 143 231 181 162  58  24 153 137   5
 60  60  89  60  60  60 179  60 250 117 117  87  60  60  60  60
""",
)
_LOW_SURROGATES: Final = (0xDC00, 0xE000)
_LOW_COST: Final = 100  # of the second half of a surrogate pair; a lone one costs as any other character
_ASCII: Final = bytes(code for code in range(0x80) if code not in CONTROLS)
_UTF_16: Final = f"utf-16-{sys.byteorder[0]}e"


@cache
def _costs() -> list[int]:
    """Return the cost of each UTF-16 unit in hundredths of a token, as a list: twice as fast to read as bytes."""
    alone = zlib.decompress(base64.b85decode("".join(_ALONE)))
    costs = [0] * len(alone)
    for start, stop, share in _BLOCKS:
        costs[start:stop] = [tokens * share for tokens in alone[start:stop]]
    start, figures = _CYRILLIC
    for code, hundredths in enumerate(map(int, figures.split()), start):
        costs[code] = hundredths
    for high in range(0xD800, 0xDC00):
        costs[high] -= _LOW_COST
    start, stop = _LOW_SURROGATES
    costs[start:stop] = [_LOW_COST] * (stop - start)
    return costs


def tokens_one_by_one(data: bytes) -> int:
    """Return the hundredths of a token of these characters in a text, given in UTF-8 with "surrogatepass".

    O(size): one look at each byte, and about 30 ns per such character. The first call unpacks the table (3 ms).
    """
    rest = data.translate(None, _ASCII)
    return _of_few(rest) if len(rest) <= _FEW_BYTES else _total(rest)


def _total(characters: bytes) -> int:
    text = characters.decode("utf-8", "surrogatepass")
    units = memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
    return sum(map(_costs().__getitem__, units))


# What has few such characters has mostly the same: a mark, some quotes, the "…" of a shortened text.
_FEW_BYTES: Final = 12
_of_few = lru_cache(maxsize=1_024)(_total)
