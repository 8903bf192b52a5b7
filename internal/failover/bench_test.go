package failover

import "testing"

// One decision about a volume whose node has crashed, gates included.
func BenchmarkDecideLost(b *testing.B) {
	in := scenario{from: crashed}.input()
	b.ReportAllocs()
	for b.Loop() {
		if d := Decide(in); d.Verdict != Lost {
			b.Fatalf("%s: %s", d.Verdict, d.Reason)
		}
	}
}
