module example.com/own-api

go 1.24
