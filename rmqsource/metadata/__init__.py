METADATA_TABLES={}
def read_metadata(*a): return iter(())
