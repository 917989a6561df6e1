// Package model holds the rules of orders, products and payments: what may be asked for, what becomes of it, and how it is
// written in a message. It does no I/O and knows no clock; whoever stores these things applies the rules inside a transaction.
//
// # The life of an order
//
//	         place: units move from available to reserved
//	           |
//	           v
//	        pending ---- payment of the exact total ----> paid
//	           |          reserved -> sold                 |
//	           |                                           | any further payment
//	timeout,   |                                           v
//	user       +----------------------------> closed    refund record
//	              reserved -> available          |         ^
//	                                             +---------+
//	                                             any payment
//
// Paid and closed are final. Money that arrives in a final state becomes a refund record and never changes the state.
package model
