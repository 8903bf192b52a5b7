// Package client speaks LINSTOR's wire: configuration, authentication, TLS, REST calls and the stream of promotion events.
//
// Only internal/linstor imports it. LINSTOR omits what it does not know, so that each value that may be missing is a pointer here.
package client
