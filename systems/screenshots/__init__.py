"""Screenshots: pages of the web as pictures, by API and for credits."""
