"""Additional tokens of Latin-script words in languages other than English.

A byte-pair vocabulary has most words of English and of code as one token, and cuts words of other languages into pieces
of two to four letters. Neighbouring letters tell which of the two a text is, and how small its pieces are. A text that
reads as English, code or data gets no addition.
"""

from __future__ import annotations

import base64
import sys
import zlib
from typing import Final

__all__ = ["KINDS", "tokens_beyond_english"]

KINDS: Final = 40
"""Kinds of characters: a blank, 26 letters in either case, five kinds of accented letters, other scripts, and signs."""

_BLANK, _LETTER, _LATIN_1, _EXTENDED_A, _EXTENDED_A_END, _EXTENDED_B, _ADDITIONAL = 0, 1, 27, 28, 29, 30, 31
_OTHER_SCRIPT, _LATIN_SIGN, _DIGIT, _STOP, _APOSTROPHE, _SIGN, _LINE_END = 32, 33, 34, 35, 36, 37, 38


def _kinds() -> bytes:
    """Return the kind of a character by its first byte in UTF-8."""
    kinds = bytearray([_SIGN]) * 256
    kinds[0x80:] = bytes([_OTHER_SCRIPT]) * 128
    for place in range(26):
        kinds[ord("a") + place] = kinds[ord("A") + place] = _LETTER + place
    for codes, kind in (
        (b" \t\f\v", _BLANK),
        (b"\r\n", _LINE_END),
        (b"0123456789", _DIGIT),
        (b",.;:!?", _STOP),
        (b"'", _APOSTROPHE),
        (b"\xc2", _LATIN_SIGN),
        (b"\xc3", _LATIN_1),
        (b"\xc4", _EXTENDED_A),
        (b"\xc5", _EXTENDED_A_END),
        (b"\xc6\xc7\xc8\xc9", _EXTENDED_B),
        (b"\xe1", _ADDITIONAL),
    ):
        for code in codes:
            kinds[code] = kind
    return bytes(kinds)


# Three tables, derived by tools/derive_languages.py. By first byte: evidence that the text is in another language (128:
# none). By pair of kinds, as signed bytes: that evidence in half units, and the additional hundredths of a token of a
# text in another language.
_COSTS: Final = (
    "c-pO2cWhks9sj;@@9y1rckh;OPuu6SeV(z6;}FNrB56_*$e;<7QlO%M)HH+ucH-wtLka;@q#{Jc5JIY`Ky4+UO$7oX5<(UUNyu`Bw;k^rzV&8*=e"
    "7v-FQoP(-O#<yZ+zG1bG^O)#uIpNFW38hJXL(_>3L?y^9P=IZuh~R-MhHg9*=iFxodA%PtTKkd*i=)>Su2~&h77d_PH1KztX$!^}R3c>pA%Ro@cu"
    "b{_g3Q4!ru}rXFt7qX+ly-Phao+b8$G@lsC@7w>+J>)O4qcW+Pp?T2^%w5Ruf$EzpadHq1|%fH!&zIXNP+Jiox>FIi=n_Jj?XZOK9UAuO7cXxB$y"
    "Sx7@LWJX)tMlQ26AG0bkCjC{xF$U6k)kDMd>uOO!R^x25f10tA~(UqX^iFVr9!86#e+6p$7wypqKozU@hQc%r*)glTulfZ^}r02R5si=7_yPO7T="
    "&gT5M`_jI`#P9QKtI>seA_#F$yo{ayN4f%%e)W&WA^sDCZ<`(b++=cCi?u?l~i`{q3>+!)IMq~FF~CgE6&nGDe@b)2QFo($YJevgM5=+<IN=xSXe"
    "q{Aao)l7WDspBAiWxsZLPGxoWEaR3krma(bIw$q?mE`M|mK~+l8Y*D4T^vsCheEbKzcTr8&7zE|HNAf2_07@g6$6<HcPH)W(m)aZD@yqksLV@7wh"
    "UEU&$yz2nhO`TRcl5nxUlWs)`ynWxJl3wSTHW}GtjSc1gdVio0o^{>i6UfBe$CMiyD`6zYeS=er&}fRXm8NFn0zx_pHQglH$_`xVtpg(|wwxJ2b}"
    "KxbOT!39fuywbKrhTq7;O6Au@>9!@69cbC$V$9vOgWLW=H2}{(6Zqplz_cL1|1u(iZ)Zja0!`kO+IIc0lEp~HiZkMCZvwGq-MvqZO?4grbzW_Hvr"
    "7=Yq+`$z(x93`y+%&YBPJdu7^|EiW+!8H8=2%~<=iCsG!=%-6WBq3Cs;NA!Uw3WHUz1sC8?0HZ#kmzabqEKC+L=y4c(wLyncpitxs;GX3{M9uwz("
    "{qWk+NQ!9@)=B8rVVl*<FKDD3n~ZIU+GXtjDwg}zj%aDV!vY<#|?fpv$0Hd8DYUOx+CI;LY@slD(wja5o{YP4~WaCNk~o~`T??>72y62r_nxkiMx"
    "pn79jxo=~Kb*AiQm<=<L96h76+Pqj8BNpnGQ6M1$-7$VGK-Z>rR+dXmwZqDhdJx?0opxsO7hJ20GHLOak<_<?&}YA0d2m2@cvy9}*E3fwGICpA8e"
    "f7N_$U`s)4^t4^$T#MA7<v39h#(6cgA(mmDj5_LeP{V>uy_hZOfTG-1>UF$xf{5KX&dkY_(sRZs$wC#X=RF3ZDxOStiKzsx2*IOVuO3Fr_v^e#gA"
    "809z!QXXOq;>|-ici|gyH{xXkO6EitF!cQ|8MFR}Vl39V=I&HgCEcO1Wfvg2WVO7kfoLlk;O`IuczyP&s%O9+RJoIl|%W4`+J#3SMU2YC68FJ-rP"
    "c=#yBicxm6buK~UvRSwUvd|=>`86L?TLnthUkW~Ud=B@V=3o}U?k{PI|+;iCa(FU8M54ZgYS~Fu6A8e7x8)pU&^I(-WOS}xQvbv1uB|oR3HPuah0"
    "3ban5B1j#|R)<+!s1$L;d1&^1`2j}iKXgYN_@;#K)+M-&Kpdj%7*xb$kMibMlC5(pj5TFfB~pb2n*t(~OBuoe{RF3jlAo81&>H9n784`z%gvFHKu"
    "!bM(PaY&u$^%KA_KnH;uC;~mj08>L!pDX@=aHj!cM)U}ADNMBns{p-`Wq~NN5I$32VKG$I;#$-{Dn|*BX+v0WgEk!20ZEz=5z9*xuswvieDDC^7^"
    "Xsdp*6(?1O+%=JoP&$O;8Wu9h)#mjZnd^7Q>NRrm;y~Unn`}U*rzx7Fe5M?5(lGQ^56SN3yB;42<U$j4gbigS7Rin^crMv%phBsvv(I2X52wCl~H"
    "l)QepbVAtE5uBYxeEmLSOT9rfjFe#9ZPtZvS%-cTuEANUVnDbjtSI4sndNk<5rBD5*%y_X8k~Dqzn@e$spBx%GcJp#7|IJNhY9@DeR7nheo-HIm`"
    "d1Vjd^jV=<M2ZfUln#^b?wbH^?tFjl6|0rYoTmSYc_PPSbFZoG{hiI#xEWR(B%eXkql<5ZK37kcEO*k5-jEOW#H@xWoM5TVxUN^v<-FjTE!f3)@w"
    "U&p~|r#w@YtVJ4<WI^^!R$i7*Qw1BQzCC~mh;zi))erRF2%S#fBVuVjY2<CH6;{&-3era{4E64J2zT1eTN)iGQ3oJ1?y^Q8kPa}z&O>uIMvGcsN5"
    "8?_PD5(XoqBNe+@SzR~#gu|B5#I)1djw{K`;Mk^#>l2s(WbqzFK>4X$Yt)uSr;T}=L$HTa1U}DVDl1X$b&q8WC?T>e$w;41R=7m{E#YcZ+mX)j<8"
    "2yyw4iIWRM*Yi{`H`k;X$!8CN%A-&9T{lSJ0VE*4QF7yT}o21od4BR#!rQDPzK6P;kAX1)$ztG+SCyxWl(iRa;qCnp*19wYxSBo0?kJzdU&=iw>q"
    "+@^7H~Ic@%+!BJ9K7GRye70ph2ef8~4-cpOpW1CMFCy2!`G$dp8kYsJP4CEWutgMn-HcXfa`pPzOsejHkme2Dn0G`*>0T>J}Qj1B>>z4b1(~0@js"
    "*2iWS?gq_ajqPWNb)!+`SJEKK!Rk{%*$HYQP5zrjnPaK4sFIbsdCrb&)h63w5--*D2_okI?6A;<v8c43VZcyD;UylBI`(JO<VNvAqBjk%vf(F5j~"
    "YZp56HfyNv44RZJ!BrVXd3BOg{@uU*+<#m^N8zzs~L8K5&+PO9njgw;`M?6bPgkcC8a!ksTf{Psq9Ag=~VhpCWea62p}6|XovcHb26nL4pdpfyJl"
    "Q`Q-8PFfga9g-XXvBZtPFMATX&N63$7aGfR(WF#CUyS0+A3xXdDu7utYC$kI*W7D&dIb;l$VQ`8qZ!F&FVExxf_peK_-SHZ23$>1gK4;0PUHi;$%"
    "u(=-(b!!Q23i#(L|>#w#Sl}`coH>^sE)oe$7^ms^N>30n1b<=(CwisUTr1bgrl(!<~Itzg-WCYKx%+#Su%V3%Q(EtznF&<oYbbdyT-5>9835hafU"
    "j03|8~^&xjX60`9+ITH5MejqHmyr{{=tc(SZ<wObffqZR<LNovKc7q+N9SvH-Vr$pMVrI(b)htHEF?zEoEm@E~c?oq*>=r)L?l;$YLlwpr^BvV}V"
    "VGA{xg3!koS#VI=x+|CqUdqp*c!XlXYuOSl-rh>+-*_1*5M7;#%!!x8W90Wk;20~z`IAvE*MVW%2ZgIJbL2m_^|Y6!%_X%qzNB=XXb_?qa447ObO"
    "!S%JA4N8HBH7@yg^$iOHQAlmw*X8h-d}|G*chaPI+%_k$zyFmV=S>@t>_uq%VOM6z=!3I~zDah6|@sxyFegI6$QJ?IvLAd;9UBd1kBkE{fPye#K0"
    "|3}y47=DH*+RhNBBJo4`0A``C$T(t=$Oaa?BUkK$ABtB5yl7Di+J#}Vl9NHi<nP;ua=xf;6NYJY2u&oz>M@EpNp3;X6iiY;D2{FsVgwhFPL4>5!W"
    "SfgKsA(PSsqnn9!DJIJ4+G_GK$kQOk!XILN*kAi<k45N_OWl5}B74XymD&%tBFzKvMuEnIJ_KlQ})7@XFMfIzy{*MMEs?C`w_?NAQ2gKLK$aqQd"
)
_KIND_OF: Final = _kinds()
_UNPACKED: Final = zlib.decompress(base64.b85decode("".join(_COSTS)))
_PIECE: Final = 4_096  # characters classified together
_GLANCE, _LOOK = (4, 32), (8, 64)  # (runs, characters) sampled from a piece: the quick check, then the full one
_WHOLE: Final = 2 * _GLANCE[0] * _GLANCE[1]  # characters up to which the quick check takes all of a piece
_FEWEST: Final = 16  # characters below which a text says nothing of its language
_DOUBT: Final = 25  # characters added to the length of a text, so that a short one needs more evidence
_PRIOR: Final = -410  # hundredths of evidence of an empty text
_NO_EVIDENCE: Final = 128  # in the table of lone characters
_CLEARLY_ENGLISH: Final = -0.879  # evidence per character at a glance
_LEAST, _ENOUGH = -110, 0  # hundredths of evidence from which the addition counts in part, and in full


def _by_neighbours(table: bytes) -> list[int]:
    """Index a table by two neighbouring kinds, read as one 16-bit number. A list has the fastest access."""
    signed = memoryview(table).cast("b")
    entries = [0] * (256 * KINDS)
    for before in range(KINDS):
        for now in range(KINDS):
            place = int.from_bytes((before, now), sys.byteorder)
            entries[place] = signed[before * KINDS + now]
    return entries


_LONE: Final = bytes(_UNPACKED[:256])
_EVIDENCE: Final = _by_neighbours(_UNPACKED[256 : 256 + KINDS * KINDS])
_TOKENS: Final = _by_neighbours(_UNPACKED[256 + KINDS * KINDS :])


def tokens_beyond_english(characters: bytes) -> int:
    """Return the hundredths of a token to add to a text, given as the first byte of each character in UTF-8.

    Negative if the accented letters of a language cost less than on their own. O(size): 3 ns per byte of English or
    code, 30 ns per byte of another language.
    """
    if len(characters) < _FEWEST:
        return 0
    if len(characters) <= _PIECE:
        return _of_piece(characters)
    return sum([_of_piece(characters[start : start + _PIECE]) for start in range(0, len(characters), _PIECE)])


def _of_piece(characters: bytes) -> int:
    # Single characters leave no doubt in nearly all English and code. That saves the look at neighbours.
    glance = characters if len(characters) <= _WHOLE else _spread(characters, *_GLANCE)
    evidence = zlib.adler32(glance.translate(_LONE), 0) & 0xFFFF  # a sum, as in `estimate`
    if evidence - _NO_EVIDENCE * len(glance) <= _CLEARLY_ENGLISH * (len(glance) + _DOUBT):
        return 0
    kinds = (b" %b " % characters).translate(_KIND_OF)
    evidence = _evidence(_spread(kinds, *_LOOK))
    if evidence <= _LEAST:
        return 0
    tokens = _total(_TOKENS, kinds)
    return tokens if evidence >= _ENOUGH else tokens * (evidence - _LEAST) // (_ENOUGH - _LEAST)


def _spread(characters: bytes, runs: int, size: int) -> bytes:
    """Sample a piece evenly: `runs` of `size` characters, or the whole piece if that is little more."""
    if len(characters) <= 2 * runs * size:
        return characters
    step = len(characters) // runs
    return b"".join([characters[start : start + size] for start in range(0, step * runs, step)])


def _evidence(kinds: bytes) -> int:
    """Return hundredths of evidence that these characters are words of a language other than English."""
    return _PRIOR + 50 * _total(_EVIDENCE, kinds) // (len(kinds) + _DOUBT)


def _total(entries: list[int], kinds: bytes) -> int:
    """Return the sum of the entries of all pairs: the even ones, then the odd ones."""
    size = len(kinds)
    view = memoryview(kinds)
    entry = entries.__getitem__
    even = sum(map(entry, view[: size & ~1].cast("H")))
    return even + sum(map(entry, view[1 : size - (size & 1 ^ 1)].cast("H")))
