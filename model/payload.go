package model

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TopicExpire is the topic of the message that closes an order which is still pending at its due time. Its key is the
// order number.
const TopicExpire = "order.expire"

// TopicRemind is the topic of the message that reminds the buyer of an order which is still pending some time before that. Its key is
// the order number.
const TopicRemind = "order.remind"

// IsOrderTopic reports whether messages of this topic belong to the order service, and are nobody else's to write.
func IsOrderTopic(topic string) bool { return topic == TopicExpire || topic == TopicRemind }

// PayloadType is the content type of an encoded OrderPayload.
const PayloadType = "application/json"

// OrderPayload is the payload of the messages about an order.
type OrderPayload struct {
	No string `json:"no"`
}

// Encode writes the payload as JSON.
func (p OrderPayload) Encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a string always encodes
	}
	return b
}

// DecodeOrderPayload reads what Encode wrote. It refuses unknown fields, more than one value, and a number that is no id.
func DecodeOrderPayload(b []byte) (OrderPayload, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var p OrderPayload
	if err := dec.Decode(&p); err != nil {
		return OrderPayload{}, fmt.Errorf("decode order payload: %w", err)
	}
	if dec.InputOffset() != int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return OrderPayload{}, fmt.Errorf("decode order payload: bytes after the value")
	}
	if !ValidID(p.No) {
		return OrderPayload{}, fmt.Errorf("decode order payload: no %s", IDRule)
	}
	return p, nil
}
