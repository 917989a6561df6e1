package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
)

// readBody reads the request's body as one JSON object.
func readBody(c *gin.Context) (*object, error) { return readLarge(c, maxBody) }

// readLarge is readBody for a body of up to limit bytes, of which some fields are opaque.
func readLarge(c *gin.Context, limit int64, raw ...string) (*object, error) {
	if !isJSON(c.Request.Header) {
		return nil, errMediaType
	}
	data, err := readAll(c, limit)
	if err != nil {
		return nil, err
	}
	return parseObject(data, raw...)
}

// readOptional is readBody for a request that needs none: no body is an empty object.
func readOptional(c *gin.Context) (*object, error) {
	data, err := readAll(c, maxBody)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return &object{faults: &model.Faults{}}, nil
	}
	if !isJSON(c.Request.Header) {
		return nil, errMediaType
	}
	return parseObject(data)
}

// readNothing makes sure that a request which takes no input has none: no body, or an empty object.
func readNothing(c *gin.Context) error {
	in, err := readOptional(c)
	if err != nil {
		return err
	}
	return in.end()
}

func isJSON(h http.Header) bool {
	if len(h.Values("Content-Type")) != 1 || h.Get("Content-Encoding") != "" {
		return false
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return false
	}
	charset, named := params["charset"]
	return !named || strings.EqualFold(charset, "utf-8")
}

func readAll(c *gin.Context, limit int64) ([]byte, error) {
	if c.Request.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
	if err == nil {
		return data, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errSlowBody
	}
	return nil, model.Invalid("body", "could not be read to its end")
}

func tooLarge(limit int64) error {
	if limit == maxMessageBody {
		return errMessageTooLarge
	}
	return errTooLarge
}

// shown makes a client's own name for something fit to be sent back.
func shown(name string) string {
	const most = 64
	if name == "" {
		return `""`
	}
	clipped := strings.ToValidUTF8(name[:min(len(name), most)], "\uFFFD")
	if clipped != name {
		clipped += "..."
	}
	if quoted := fmt.Sprintf("%q", clipped); quoted != `"`+clipped+`"` {
		return quoted
	}
	return clipped
}
