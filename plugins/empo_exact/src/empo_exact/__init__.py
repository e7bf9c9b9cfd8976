"""Exact human empowerment by backward induction over the state graph."""
