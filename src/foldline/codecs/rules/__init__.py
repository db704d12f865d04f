"""The checks of each dialect, one module a dialect; `foldline.codecs.validity` runs them."""
