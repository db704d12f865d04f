"""The checks of each dialect, one module a dialect; `foldline.codecs.rules.validity` runs them."""
