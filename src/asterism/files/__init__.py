"""Files at a path or a URI: which file system a location is on (``file_systems``), Hadoop's file systems (``hadoop``), and local
files that are replaced as a whole (``durable_files``).
"""
