"""What tables, figures and the page say beside their numbers: cells, captions, how all was made."""
