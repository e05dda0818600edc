module github.com/orderlane/orderlane/thin_client/go

go 1.23

require github.com/apache/thrift v0.22.0
