"""What a provider bounds besides tokens: names and ids, media, counts, cache markers (docs/design/008)."""
