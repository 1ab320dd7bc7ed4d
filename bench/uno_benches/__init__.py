"""UNO's figures in emulation: `bench/uno`."""
