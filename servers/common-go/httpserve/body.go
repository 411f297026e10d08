package httpserve

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"common/contract"
)

// ReadBody returns the whole body of a request, or a refusal.
func ReadBody(writer http.ResponseWriter, request *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, contract.MaxBodyBytes))
	if err == nil {
		return body, nil
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, contract.BodyTooLarge
	}
	return nil, contract.BadRequest("the body cannot be read: %v", err)
}

// WriteJSON answers with the body as JSON.
func WriteJSON(writer http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // the contract's bodies can always be encoded
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(status)
	writer.Write(encoded)
}
