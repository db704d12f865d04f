"""The page that shows what a bench measured."""
