"""What worlds on a grid share: cells, maps in files, pictures. Cells are numbered row by row."""
