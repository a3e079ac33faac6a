"""One write to one or more streams: what a process keeps of them, and how an act is carried out."""
