"""The physics of a frame: state, collisions, entities, the ninja.  The rules: docs/physics.md."""
