package main

import (
	"encoding/json"
	"errors"
	"net"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"common/contract"
)

// answerError is Fiber's central error handler; unknown paths and wrong methods come here too.
func answerError(c fiber.Ctx, err error) error {
	refusal := contract.RefusalOf(err)
	var told *fiber.Error
	if errors.As(err, &told) {
		switch told.Code {
		case fiber.StatusNotFound:
			return c.JSON(contract.NotFound)
		case fiber.StatusMethodNotAllowed:
			refusal = contract.MethodNotAllowed
		default:
			refusal = &contract.Refusal{Status: told.Code, Reason: told.Message}
		}
	}
	return c.Status(refusal.Status).JSON(refusal)
}

// answerUnreadable answers bytes that fasthttp could not read as a request; fasthttp then closes the
// connection.
func answerUnreadable(ctx *fasthttp.RequestCtx, err error) {
	refusal := contract.BadRequest("the request cannot be read: %v", err)
	var network net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		refusal = contract.BodyTooLarge
	case errors.As(err, new(*fasthttp.ErrSmallBuffer)):
		refusal = &contract.Refusal{Status: fiber.StatusRequestHeaderFieldsTooLarge, Reason: "the header is too large"}
	case errors.As(err, &network) && network.Timeout():
		refusal = &contract.Refusal{Status: fiber.StatusRequestTimeout, Reason: "the request did not arrive in time"}
	}
	body, err := json.Marshal(refusal)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	ctx.SetStatusCode(refusal.Status)
	ctx.SetContentType(fiber.MIMEApplicationJSON)
	ctx.SetBody(body)
}
