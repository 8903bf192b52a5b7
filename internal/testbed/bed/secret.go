package bed

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// What every process of the high availability controller is given on a bed, where LINSTOR asks for none of it.
const (
	plantedUser        = "testbed"
	plantedPassword    = "geheim-7Qz41x"
	plantedURLPassword = "geheim-Kd83mW"
	plantedToken       = "geheim-zR5t9v"
)

// Secrets returns the text by which each credential that was planted is recognised, by what it is. None of them must appear in
// anything that a process says.
func Secrets() map[string]string {
	basic := func(password string) string {
		return base64.StdEncoding.EncodeToString([]byte(plantedUser + ":" + password))
	}
	_, key := plantedPair()
	block, _ := pem.Decode([]byte(key))
	body := base64.StdEncoding.EncodeToString(block.Bytes)
	return map[string]string{
		"password": plantedPassword, "header with the password": basic(plantedPassword),
		"password in the URL": plantedURLPassword, "header with the password in the URL": basic(plantedURLPassword),
		"bearer token": plantedToken,
		// Its beginning is that of every key of its kind, and PEM breaks its lines after 64 characters.
		"client's key": body[64:96],
	}
}

// SecretEnv returns the environment with everything that is planted: the address host:port of LINSTOR and, if there is a
// file for it, a bearer token, which wins over passwords.
func SecretEnv(linstor, tokenFile string) (map[string]string, error) {
	cert, key := plantedPair()
	env := map[string]string{
		"LS_CONTROLLERS": "http://" + plantedUser + ":" + plantedURLPassword + "@" + linstor,
		"LS_USERNAME":    plantedUser, "LS_PASSWORD": plantedPassword,
		"LS_USER_CERTIFICATE": cert, "LS_USER_KEY": key,
	}
	if tokenFile == "" {
		return env, nil
	}
	if err := os.WriteFile(tokenFile, []byte(plantedToken), 0o600); err != nil {
		return nil, fmt.Errorf("plant a token: %w", err)
	}
	env["LS_BEARER_TOKEN_FILE"] = tokenFile
	return env, nil
}

// plantedPair is a client's certificate and its key, as PEM.
var plantedPair = sync.OnceValues(func() (cert, key string) {
	// None of these can fail for a new key.
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: plantedUser}, NotAfter: time.Now().AddDate(1, 0, 0)}
	der, _ := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(private)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
})

// Told returns which of the planted credentials are in a text, in whatever case.
func Told(text []byte) []string {
	lower := bytes.ToLower(text)
	secrets := Secrets()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(secrets)), func(what string) bool {
		return !bytes.Contains(lower, []byte(strings.ToLower(secrets[what])))
	})
}

// ToldInLogs looks for the planted credentials in the logs of all processes of the bed, and returns a line for each that it
// finds. It can be called after Stop.
func (b *Bed) ToldInLogs() ([]string, error) {
	logs, err := filepath.Glob(filepath.Join(b.LogDir, "*"))
	if err != nil {
		return nil, fmt.Errorf("logs of the bed: %w", err)
	}
	var told []string
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			return nil, fmt.Errorf("logs of the bed: %w", err)
		}
		for _, what := range Told(content) {
			told = append(told, filepath.Base(log)+" tells the "+what)
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("no logs in %s", b.LogDir)
	}
	return told, nil
}

// LineWith returns the first line of a log in which there is one of the words, in whatever case and however long the line
// is. It is empty if there is none.
func LineWith(log string, words ...string) (string, error) {
	content, err := os.ReadFile(log)
	if err != nil {
		return "", fmt.Errorf("log: %w", err)
	}
	for line := range bytes.Lines(content) {
		lower := bytes.ToLower(line)
		for _, word := range words {
			if bytes.Contains(lower, []byte(strings.ToLower(word))) {
				return string(bytes.TrimRight(line, "\n")), nil
			}
		}
	}
	return "", nil
}
