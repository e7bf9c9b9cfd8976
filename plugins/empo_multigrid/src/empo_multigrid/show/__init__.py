"""States for people: text, pictures, glyphs."""
