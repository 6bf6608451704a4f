"""The converter: a person drops a PDF and gets XML, through a gateway that may fail. The first system on Holdfast."""
