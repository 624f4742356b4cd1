"""Draws charts: as SVG, with Matplotlib, in the report's colours."""
