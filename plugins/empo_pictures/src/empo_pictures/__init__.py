"""Pictures of worlds and results: canvas, sheets, figures, notebooks."""
