"""The tables of a store, a folder of numbered scripts for each SQL dialect; never edited once released."""
