"""The studio: a local web page to play, record, watch and edit levels with the exact physics (docs/play.md)."""
