"""The studio: one local page to play, record, watch and edit levels in the browser, on the exact physics (docs/play.md)."""
