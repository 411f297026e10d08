module example.com/plain-api

go 1.24
