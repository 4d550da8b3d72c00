"""The fuzzer of readers: valid files of every format, ways to damage them, and processes that read the damaged ones."""
