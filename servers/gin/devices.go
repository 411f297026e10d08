package main

type device struct {
	UUID     string `json:"uuid"`
	MAC      string `json:"mac"`
	Firmware string `json:"firmware"`
}

// devices is the contract's fixed list; it is serialised anew for every request.
var devices = []device{
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01", "02-00-00-00-00-01", "1.0.0"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02", "02-00-00-00-00-02", "1.0.4"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03", "02-00-00-00-00-03", "1.2.0"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04", "02-00-00-00-00-04", "2.0.1"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05", "02-00-00-00-00-05", "3.1.5"},
}
