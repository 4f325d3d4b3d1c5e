"""Files and tables: URIs and atomic writes, Arrow and Parquet tables, stages with manifests, locks, copies on a host."""
