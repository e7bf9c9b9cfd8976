"""The theory of human empowerment: parameters, equations and values to inspect."""
