package client

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// material is PEM text, given directly or by a file.
type material struct {
	variable string
	file     string
	pem      []byte
}

// read returns the PEM text, from the file as it is now where there is one.
func (m material) read() ([]byte, error) {
	if m.file == "" {
		return m.pem, nil
	}
	content, err := readFile(m.file)
	if err != nil {
		return nil, fmt.Errorf("environment variable %s: %w", m.variable, err)
	}
	return content, nil
}

// tlsFiles is where trust and identity for TLS come from.
type tlsFiles struct {
	// roots are the trusted authorities; nil means those of the system.
	roots *x509.CertPool
	cert  *material
	key   *material
}

func tlsFromEnv(lookup func(string) (string, bool)) (tlsFiles, error) {
	ca, errCA := materialFromEnv(lookup, envRootCA)
	cert, errCert := materialFromEnv(lookup, envUserCert)
	key, errKey := materialFromEnv(lookup, envUserKey)
	if err := cmp.Or(errCA, errCert, errKey); err != nil {
		return tlsFiles{}, err
	}
	if (cert == nil) != (key == nil) {
		return tlsFiles{}, fmt.Errorf("environment variables %s and %s (or with the suffix %s): set both or none",
			envUserCert, envUserKey, fileSuffix)
	}
	files := tlsFiles{cert: cert, key: key}
	if ca != nil {
		var err error
		if files.roots, err = ca.pool(); err != nil {
			return tlsFiles{}, err
		}
	}
	if cert != nil {
		if _, err := files.keyPair(); err != nil {
			return tlsFiles{}, err
		}
	}
	return files, nil
}

// materialFromEnv returns nil when neither variable exists.
func materialFromEnv(lookup func(string) (string, bool), name string) (*material, error) {
	if path, ok := lookup(name + fileSuffix); ok {
		if path == "" {
			return nil, fmt.Errorf("environment variable %s%s: empty; it must name a PEM file", name, fileSuffix)
		}
		return &material{variable: name + fileSuffix, file: path}, nil
	}
	if pem, ok := lookup(name); ok {
		return &material{variable: name, pem: []byte(pem)}, nil
	}
	return nil, nil
}

// pool returns the certificates in the PEM text.
func (m material) pool() (*x509.CertPool, error) {
	pem, err := m.read()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("environment variable %s: no PEM certificate found", m.variable)
	}
	return pool, nil
}

// keyPair reads the client's certificate and key as they are now.
func (f tlsFiles) keyPair() (*tls.Certificate, error) {
	cert, err := f.cert.read()
	if err != nil {
		return nil, err
	}
	key, err := f.key.read()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("environment variables %s and %s: %w", f.cert.variable, f.key.variable, err)
	}
	return &pair, nil
}

// config returns the TLS settings of a transport. The client's pair is read for each handshake, because such certificates are rotated
// in place.
func (f tlsFiles) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: f.roots}
	if f.cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return f.keyPair()
		}
	}
	return config
}
