# Piraeus High Availability Controller
#
# Needs Go, git, make and a shell. Everything else (Kubernetes' control plane, the CSI attacher, tools)
# is built from Go modules, at the versions their go.mod names. Only the picture of the dashboard needs Node.js, npm and Chromium.

SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULE  := github.com/piraeusdatastore/piraeus-ha-controller
VERSION ?= $(shell git describe --tags --dirty --match 'v[0-9]*' 2>/dev/null | sed 's/^v//')
COMMIT  ?= $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null)

# Shows how far a build or a test run is.
PROGRESS := $(CURDIR)/internal/tools/progress/progress.sh

# The race detector needs a C compiler; without one the tests run all the same. Each package runs on one core with it:
# where two run timers of one synctest bubble at once, the detector itself fails (golang/go issue 78156).
RACE := $(if $(shell command -v $$(go env CC) 2>/dev/null),-race -cpu 1)

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make <target>"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build and test

.PHONY: build
build: bin/piraeus-ha-controller ## Build the controller into bin/

# Phony: go build itself knows best what has changed.
.PHONY: bin/piraeus-ha-controller
bin/piraeus-ha-controller:
	@mkdir -p bin
	@CGO_ENABLED=0 $(PROGRESS) build "the controller" -trimpath -buildvcs=false \
		-ldflags "-X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/internal/version.revision=$(COMMIT)" -o $@ .

# Each scenario on the test bed bounds what it waits for; this ends only what hangs.
TEST_TIMEOUT  ?= 45m
# Tests on the test bed mostly wait; more of them may run at a time than there are cores.
TEST_PARALLEL ?= 16

# These take the longest. They begin first, so that the others run beside them. The first two mostly wait, in real time: each takes a
# place, but hardly a core.
TEST_PACKAGES ?= 4
TEST_FIRST    := ./internal/testbed/bed/scenarios ./deploy ./controllers

# Tests of these names need what only maintainers build, or take the longest.
MAINTAINERS := ^Test(With(Helm|Promtool|Prometheus)|AnyProcessIsKilled|EvacuationsInTrouble)
TESTED      := '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'

# $(call run-tests,packages,arguments) tests the packages that have tests. Vet, which would read all dependencies first, has a target of its own,
# and nobody debugs these programs.
define run-tests
	@packages=$$(go list -f $(TESTED) $(1)) && $(PROGRESS) test $$(sort -u <<<"$$packages" | wc -l) \
		bin/gotestsum --format testname --format-hide-empty-pkg --hide-summary skipped -- \
		-vet=off -ldflags='-s -w' -shuffle=on -timeout $(TEST_TIMEOUT) -p $(TEST_PACKAGES) -parallel $(TEST_PARALLEL) $(2) $$packages
endef

.PHONY: test
test: testbed bin/gotestsum ## Run the tests, those on a real control plane included
	@$(PROGRESS) build "what is tested" $(firstword $(RACE)) $$(go list -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' ./...)
	$(call run-tests,$(TEST_FIRST) ./...,$(RACE) -short -skip '$(MAINTAINERS)')

.PHONY: test-all
test-all: test test-maintainers ## Run all tests, those for maintainers included

# The race detector, and -short, cut short what the second run plays at its full length.
.PHONY: test-maintainers
test-maintainers: testbed bin/gotestsum helm bin/promtool bin/prometheus ## Run only what make test leaves out: what needs Helm or promtool, the image, the longest stories (make alerts is apart)
	$(call run-tests,./internal/testbed/bed/scenarios ./deploy,$(RACE) -run '$(MAINTAINERS)')
	$(call run-tests,./controllers ./internal/failover ./internal/linstor ./internal/testbed/sim)
	@for module in $(MONITORING) $(IMAGE) $(BENCHCHART); do (cd $$module && echo "testing $$module" && go test ./...) || exit 1; done

bin/gotestsum: internal/tools/pinned/go.mod
	@mkdir -p bin
	@CGO_ENABLED=0 $(PROGRESS) build gotestsum -modfile=$< -trimpath -o $@ gotest.tools/gotestsum
	@touch $@

FUZZTIME ?= 30s

# Before Go 1.27 a target may fail with nothing but "context deadline exceeded" when its time is up (golang/go#75804): it is run
# once more then. What was really found is in testdata by then, and fails at once again.
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 30s)
	@set -o pipefail; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's|/[^/]*:func | |' | sort \
		| while read -r dir target; do \
			once() { go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null 2>&1 | tee "$$log"; }; \
			once || { grep -qx ' *context deadline exceeded' "$$log" && once; } || exit 1; \
		done

.PHONY: mutants
mutants: ## Break every rule once and see that a test notices (ARGS=-help for more)
	go run ./internal/tools/mutants $(ARGS)

SEEDS ?= 1000
FRESH ?= 0

.PHONY: sim
sim: ## Play random histories against the controller in virtual time (SEEDS=20000 FRESH=200, or SEED=17 to tell one; ORDINARY=1 for ordinary operations only, LEAVING=1 for nodes that leave)
	@GOGC=1000 go test ./internal/testbed/sim -run '^TestSimulation$$' -count=1 -v -timeout 120m -args \
		$(if $(SEED),-sim.seed=$(SEED) -sim.only=$(ONLY),-sim.seeds=$(SEEDS) -sim.fresh=$(FRESH)) $(if $(ORDINARY),-sim.ordinary) $(if $(LEAVING),-sim.leaving) | grep -v '^=== '; exit $${PIPESTATUS[0]}

.PHONY: foretold
foretold: ## Compare what check foretells with what becomes of pods in the first 500 histories
	@go test ./internal/testbed/sim -run '^TestForecastsOfHistories' -count=1 -v -timeout 30m -args -sim.foretold=500 | grep -E 'seed|foretold|forecasts'; exit $${PIPESTATUS[0]}

# The times stand at the end of the page, below its last heading.
.PHONY: reliability
reliability: testbed ## Measure again the recovery times in docs/reliability.md
	@set -o pipefail; page=docs/reliability.md; { go test -count=1 -v \
		-run 'TestFaultsOf[LTPCW]|TestTheLeaderIs|TestALeaderThat|TestLinstorItselfWas' ./controllers \
		&& go test -count=1 -v -run 'TestLinstorRunsOnTheLostNode|TestTheCSIController|TestAnyProcessIsKilled' \
			./internal/testbed/bed/scenarios; } \
		| awk '/^=== (RUN|NAME|CONT)/ {name = $$0; sub(/^=== [A-Z]+ +/, "", name); gsub(/_/, " ", name)} \
			/_test.go:[0-9]+: .*(moved|stopped|workload runs|runs elsewhere|after the crash)/ {text = $$0; sub(/^[^:]*:[0-9]+: /, "", text); print "| " name " | " text " |"}' \
		| LC_ALL=C sort > $$page.tmp \
		&& { sed '/^| Test | Measured |/,$$d' $$page; printf '| Test | Measured |\n| --- | --- |\n'; cat $$page.tmp; } > $$page.new \
		&& mv $$page.new $$page; code=$$?; rm -f $$page.tmp $$page.new; exit $$code

# Two stories differ only by a crash. A function counts if one of its statements runs more than twice as often with the crash: fewer
# than 20 of them do so by chance. What a user sets, in main.go and internal/options, is no time constant.
WALK_PACKAGES = $$(go list . ./controllers ./internal/... | grep -v '/internal/testbed\|/internal/tools' | paste -sd,)
WALK_FILES    = $$(git ls-files $(1) | grep '\.go$$' | grep -v '_test\.go$$\|^internal/testbed/\|^internal/tools/')

.PHONY: walk
walk: ## Print how much of the program runs because one node crashes, and how large it is
	@mkdir -p .testbed; set -o pipefail; for story in one no; do \
		go test -count=1 -run "^TestWalk$$/^$${story}_node_crashes$$" -covermode=atomic -coverpkg=$(WALK_PACKAGES) \
			-coverprofile=.testbed/walk-$$story ./controllers >.testbed/walk.log 2>&1 || { cat .testbed/walk.log; exit 1; }; done
	@awk 'NR == 1 {print} FNR == 1 {next} NR == FNR {idle[$$1] = $$3; next} {print $$1, $$2, ($$3 > 2 * idle[$$1])}' \
		.testbed/walk-no .testbed/walk-one > .testbed/walk
	@go tool cover -func=.testbed/walk | awk '$$1 != "total:" && $$NF != "0.0%" {functions++; sub(/:.*/, ""); files += !seen[$$0]++} \
		END {print functions " functions in " files " files run because one node crashes"}'
	@echo "$$(cat $(call WALK_FILES,controllers ':!controllers/evacuation_*') | wc -l) lines in controllers, without evacuation_*.go"
	@echo "$$(cat $(call WALK_FILES,internal/linstor) | wc -l) lines in internal/linstor"
	@echo "$$(cat $(call WALK_FILES,controllers internal ':!internal/options') | grep -oE '([0-9] ?\* ?|[=:] *)time\.(Millisecond|Second|Minute|Hour)\b' | wc -l) time constants"
	@for dir in "controllers :!controllers/evacuation_*" internal/linstor; do \
		echo "$$(cat $(call WALK_FILES,$$dir) | grep -oE '\bsync\.(RW)?(Mutex|Map)\b|\batomic\.[A-Z]' | wc -l) locks, sync.Maps and atomics in $${dir% *}"; done

MINUTES ?= 30

.PHONY: soak
soak: testbed ## Break things at random on the test bed for MINUTES (default 30; SEED=17 to repeat the choice)
	@go run ./internal/testbed/cmd/soak -duration=$(MINUTES)m $(if $(SEED),-seed=$(SEED))

.PHONY: demo
demo: testbed bin/demo ## Watch a fail-over: a node is crashed in a cluster on this machine (EVACUATE=1: one is rebooted on purpose)
	@bin/demo $(if $(EVACUATE),-evacuate)

.PHONY: playground
playground: testbed bin/playground ## Keep such a cluster running, to crash and return nodes by hand
	@bin/playground

# Built as the controller is, so that nothing is compiled twice.
.PHONY: bin/demo bin/playground
bin/demo bin/playground:
	@CGO_ENABLED=0 $(PROGRESS) build "the $(@F)" -trimpath -buildvcs=false -o $@ ./internal/testbed/cmd/$(@F)

RUNS ?= 10

.PHONY: bench
bench: testbed ## Measure what docs/benchmarks.md claims (ROWS=crash,cut RUNS=3 for less, ARGS=-help for more)
	@go run ./internal/testbed/cmd/bench -runs $(RUNS) $(if $(ROWS),-rows $(ROWS)) $(ARGS); code=$$?; $(DRAW_BENCH) && exit $$code

BENCHCHART := internal/tools/benchchart

# $(BENCH_PICTURE) prints the picture of the figures that were measured, $(DRAW_BENCH) puts it into its file.
BENCH_PICTURE = (cd $(BENCHCHART) && go run .) < docs/benchmarks.json
DRAW_BENCH    = { $(BENCH_PICTURE) > docs/benchmarks.svg.tmp && mv docs/benchmarks.svg.tmp docs/benchmarks.svg; } || { rm -f docs/benchmarks.svg.tmp; false; }

.PHONY: bench-picture
bench-picture: ## Draw docs/benchmarks.svg from docs/benchmarks.json, as "make bench" does
	@$(DRAW_BENCH)

# Which benchmarks, and how often each is run.
BENCH       ?= .
BENCH_COUNT ?= 6

.PHONY: microbench
microbench: ## Run the Go benchmarks BENCH_COUNT times (default 6) and print them by benchstat
	@mkdir -p .testbed
	@set -o pipefail; go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCH_COUNT) ./controllers/... ./internal/cluster/... ./internal/failover/... \
		./internal/linstor/... | tee .testbed/microbench.txt
	@$(TOOL) benchstat .testbed/microbench.txt

##@ Test bed

CONTROLPLANE := internal/testbed/bed/controlplane
COMPONENTS   := etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl

.PHONY: testbed
testbed: bin/controlplane $(addprefix bin/,$(COMPONENTS)) bin/csi-attacher build ## Build what the test bed runs into bin/

# $(call build-module,what,package,ldflags) builds a package of the control plane's module.
define build-module
	@mkdir -p bin
	@cd $(CONTROLPLANE) && CGO_ENABLED=0 $(PROGRESS) build "$(1)" -trimpath -ldflags "-s -w $(3)" -o $(CURDIR)/$@ $(2)
	@touch $@
endef

kubernetes-version = $(shell cd $(CONTROLPLANE) && go list -m -f '{{.Version}}' k8s.io/kubernetes)
attacher-version   = $(shell cd $(CONTROLPLANE) && go list -m -f '{{.Version}}' github.com/kubernetes-csi/external-attacher/v4)

bin/controlplane: $(CONTROLPLANE)/go.mod $(CONTROLPLANE)/go.sum $(wildcard $(CONTROLPLANE)/*.go)
	$(call build-module,Kubernetes' control plane $(kubernetes-version),.,-X k8s.io/component-base/version.gitVersion=$(kubernetes-version))

$(addprefix bin/,$(COMPONENTS)): | bin/controlplane
	@ln -sf controlplane $@

bin/csi-attacher: $(CONTROLPLANE)/go.mod $(CONTROLPLANE)/go.sum
	$(call build-module,the CSI attacher $(attacher-version),github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher,-X main.version=$(attacher-version))

.PHONY: alerts
alerts: testbed bin/prometheus ## Have a real Prometheus watch the test bed while things break: each alert fires, and rests again
	go test ./internal/testbed/bed/monitoring -run '$(MAINTAINERS)' -count 1 -timeout 30m -v

MONITORING := internal/tools/monitoring

# Prometheus without its service discoveries but those by files and fixed addresses: that is a third of the packages.
prometheus-version = $(shell cd $(MONITORING) && go list -m -f '{{.Version}}' github.com/prometheus/prometheus)

bin/prometheus bin/promtool: $(MONITORING)/go.mod $(MONITORING)/go.sum
	@mkdir -p bin
	@cd $(MONITORING) && CGO_ENABLED=0 $(PROGRESS) build "$(@F) $(prometheus-version)" -trimpath -tags remove_all_sd -ldflags "-s -w" -o $(CURDIR)/$@ \
		github.com/prometheus/prometheus/cmd/$(@F)
	@touch $@

.PHONY: clean
clean: ## Remove what was built and the logs of the test bed
	rm -rf bin dist .testbed

##@ Ship

IMG            ?= quay.io/piraeusdatastore/piraeus-ha-controller:2.0.0-dev
CONTAINER_TOOL ?= docker
PLATFORMS      ?= linux/amd64,linux/arm64
# Without a tag in git, the version is the one that the Dockerfile names.
STAMP           = $(if $(VERSION),--build-arg VERSION=$(VERSION)) --build-arg COMMIT=$(COMMIT)

# The tools are Go modules too: they are built when first used, which takes some minutes for the linter.
TOOL           := go tool -modfile=$(CURDIR)/internal/tools/pinned/go.mod
CONTROLLER_GEN  = $(TOOL) controller-gen rbac:roleName=piraeus-ha-controller-manager paths=. paths=./controllers/... paths=./internal/cluster/...
# Kustomize drops comments, so that what a user must read is put in front; and IMG replaces the image that config/ names.
ALL_YAML        = { cat config/default/header.txt && $(TOOL) kustomize build config/default; } \
	| sed 's|^\( *image: \)quay.io/piraeusdatastore/piraeus-ha-controller:.*|\1$(IMG)|'

.PHONY: manifests
manifests: ## Generate config/rbac/role.yaml and deploy/all.yaml (IMG=... for another image)
	@$(CONTROLLER_GEN) output:rbac:dir=config/rbac
	@mkdir -p deploy
	@set -o pipefail; $(ALL_YAML) > deploy/all.yaml.tmp && mv deploy/all.yaml.tmp deploy/all.yaml

# Helm in both its majors and the tool that documents the chart's values, of a module of their own.
HELM_TOOLS   := $(CURDIR)/internal/tools/helm
CHART        := deploy/charts/piraeus-ha-controller
# What the chart takes over from config/ as it is.
CHART_FILES  := config/rbac/role.yaml config/components/network-policy/network-policy.yaml \
	$(addprefix config/components/priority-and-fairness/,flow_schema.yaml priority_level.yaml) \
	$(addprefix config/extras/monitoring/,dashboard.json metrics_reader.yaml prometheus_rule.yaml service.yaml service_monitor.yaml)
CHART_SCHEMA  = bin/helm-tool schema -i $(CHART)/values.yaml | go run ./internal/tools/chartschema

.PHONY: helm
helm: bin/helm3 bin/helm4 bin/helm-tool ## Build what the chart is made and tried with into bin/

# $(call build-helm,what,package,ldflags)
define build-helm
	@mkdir -p bin
	@cd $(HELM_TOOLS) && CGO_ENABLED=0 $(PROGRESS) build "$(1)" -trimpath -ldflags "-s -w $(3)" -o $(CURDIR)/$@ $(2)
	@touch $@
endef

# Without a cluster, Helm 3 takes it that Kubernetes has this version; its default is a very old one.
helm3-kubernetes = $(foreach package,pkg/chartutil pkg/lint/rules,-X helm.sh/helm/v3/$(package).k8sVersionMajor=1 \
	-X helm.sh/helm/v3/$(package).k8sVersionMinor=$(word 2,$(subst ., ,$(shell cd $(HELM_TOOLS) && go list -m -f '{{.Version}}' k8s.io/client-go))))

bin/helm3: $(HELM_TOOLS)/go.mod $(HELM_TOOLS)/go.sum
	$(call build-helm,Helm 3,helm.sh/helm/v3/cmd/helm,$(helm3-kubernetes))

bin/helm4: $(HELM_TOOLS)/go.mod $(HELM_TOOLS)/go.sum
	$(call build-helm,Helm 4,helm.sh/helm/v4/cmd/helm)

bin/helm-tool: $(HELM_TOOLS)/go.mod $(HELM_TOOLS)/go.sum
	$(call build-helm,helm-tool,github.com/cert-manager/helm-tool)

.PHONY: chart
chart: helm ## Generate the chart's roles, schema and README, and lint it with both majors of Helm
	@mkdir -p $(CHART)/files && cp $(CHART_FILES) $(CHART)/files/ && go run ./internal/tools/chartschema obsolete > $(CHART)/files/obsolete.yaml
	@set -o pipefail; $(CHART_SCHEMA) > $(CHART)/values.schema.json.tmp && mv $(CHART)/values.schema.json.tmp $(CHART)/values.schema.json
	@bin/helm-tool inject -i $(CHART)/values.yaml -o $(CHART)/README.md
	@bin/helm-tool lint -i $(CHART)/values.yaml -d $(CHART)/templates
	@bin/helm3 lint --strict --quiet $(CHART)
	@bin/helm4 lint --strict --quiet $(CHART)

.PHONY: docs
docs: ## Write the generated parts of the pages in docs/
	@go test ./docs -run Page -write

# $(DASHBOARD) prints the dashboard, which Go code builds.
DASHBOARD      = (cd $(MONITORING) && go run ./dashboard)
DASHBOARD_JSON = config/extras/monitoring/dashboard.json

.PHONY: dashboard
dashboard: ## Generate config/extras/monitoring/dashboard.json
	@set -o pipefail; $(DASHBOARD) > $(DASHBOARD_JSON).tmp && mv $(DASHBOARD_JSON).tmp $(DASHBOARD_JSON)

# Where the page is made that is taken a picture of. Go does not look there, and some npm packages bring files of Go.
DASHBOARD_PAGE = $(CURDIR)/.testbed/dashboard

.PHONY: dashboard-picture
dashboard-picture: testbed bin/prometheus ## Draw docs/dashboard.png after a fail-over on the test bed (needs Node.js, npm and Chromium)
	@mkdir -p $(DASHBOARD_PAGE) && cp internal/tools/dashboardpicture/*.js* $(DASHBOARD_PAGE)
	DASHBOARD_ANSWERS=$(DASHBOARD_PAGE)/answers.json go test ./internal/testbed/bed/monitoring -run '^TestDashboard' -count 1 -timeout 15m
	cd $(DASHBOARD_PAGE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel error \
		&& node bundle.js $(CURDIR)/$(DASHBOARD_JSON) answers.json . && node shoot.js $(CURDIR)/$(DASHBOARD_JSON) . $(CURDIR)/docs/dashboard.png

.PHONY: docker-build
docker-build: ## Build the image IMG for this machine
	$(CONTAINER_TOOL) build $(STAMP) --tag $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image IMG
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: docker-buildx
docker-buildx: ## Build the image IMG for all PLATFORMS and push it
	$(CONTAINER_TOOL) buildx build --platform=$(PLATFORMS) $(STAMP) --push --tag $(IMG) .

IMAGE := internal/tools/image

.PHONY: image
image: helm ## Try the image, for both architectures, and the chart with a registry on this machine; needs no Docker
	cd $(IMAGE) && go test -count 1 -v ./...

DIST := dist
# For these systems a release has the program, as a plugin of kubectl.
PLUGIN_PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: dist
dist: bin/helm4 ## Make the files of a release in dist/ (VERSION=2.0.0 IMG=...)
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@test '$(VERSION)' = "$$(awk '$$1 == "version:" {print $$2}' $(CHART)/Chart.yaml)" \
		|| { echo 'VERSION=$(VERSION) is not the version of $(CHART)/Chart.yaml.' >&2; exit 1; }
	@set -o pipefail; $(ALL_YAML) > $(DIST)/all.yaml
	@cp -r $(CHART) $(DIST)/chart && sed -i 's|^\(  repository: \).*|\1$(shell sed 's|:[^:/]*$$||' <<<'$(IMG)')|' $(DIST)/chart/values.yaml \
		&& bin/helm4 package $(DIST)/chart --version $(VERSION) --app-version v$(VERSION) --destination $(DIST) >/dev/null && rm -r $(DIST)/chart
	@for p in $(PLUGIN_PLATFORMS); do \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -trimpath -ldflags "-s -w -X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/internal/version.revision=$(COMMIT)" \
			-o $(DIST)/kubectl-piraeus_ha-$${p%/*}-$${p#*/} . || exit 1; done
	@cd $(DIST) && sha256sum * > checksums.txt

.PHONY: notes
notes: ## Print what CHANGELOG.md says of a release (VERSION=2.0.0)
	@awk -v head='## [$(VERSION)]' '/^## / {on = index($$0, head) == 1; next} on {print; found = 1} \
		END {if (!found) {print "CHANGELOG.md has no section " head > "/dev/stderr"; exit 1}}' CHANGELOG.md

##@ Check

WORKFLOW_LINT := go tool -modfile=$(CURDIR)/internal/tools/workflows/go.mod actionlint

.PHONY: lint
lint: ## Run the linters, that of the workflows included
	$(TOOL) golangci-lint run
	$(WORKFLOW_LINT)

.PHONY: fmt
fmt: ## Format the code
	$(TOOL) golangci-lint fmt

.PHONY: vet
vet: ## Run go vet
	go vet ./...

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities of what the program calls (GOVULNDB=file:///... without a network)
	@out=$$($(TOOL) govulncheck ./... 2>&1); code=$$?; printf '%s\n' "$$out"; \
		if [ $$code = 1 ] && grep -q 'fetching vulnerabilities' <<<"$$out"; then \
			echo 'NOT CHECKED: the database of vulnerabilities cannot be reached; GOVULNDB may name another.'; exit 0; fi; exit $$code

.PHONY: verify
verify: bin/helm-tool ## Fail if what is generated, the format or go.mod is not current
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && set -o pipefail && \
		$(CONTROLLER_GEN) output:rbac:dir=$$tmp && diff -u config/rbac/role.yaml $$tmp/role.yaml && \
		$(ALL_YAML) | diff -u deploy/all.yaml - \
		|| { echo 'Generated files are not current: run "make manifests" and commit the result.' >&2; exit 1; }
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && set -o pipefail && \
		cp $(CHART_FILES) $$tmp && go run ./internal/tools/chartschema obsolete > $$tmp/obsolete.yaml && diff -u $(CHART)/files $$tmp && $(CHART_SCHEMA) | diff -u $(CHART)/values.schema.json - && \
		cp $(CHART)/README.md $$tmp && bin/helm-tool inject -i $(CHART)/values.yaml -o $$tmp/README.md && diff -u $(CHART)/README.md $$tmp/README.md \
		|| { echo 'The chart is not current: run "make chart" and commit the result.' >&2; exit 1; }
	@go test ./docs -run Page || { echo 'Pages in docs/ are not current: run "make docs" and commit the result.' >&2; exit 1; }
	@set -o pipefail; $(DASHBOARD) | diff -u $(DASHBOARD_JSON) - \
		|| { echo 'The dashboard is not current: run "make dashboard" and commit the result.' >&2; exit 1; }
	@LC_ALL=C grep -aq "blob:$$(git hash-object $(DASHBOARD_JSON))" docs/dashboard.png \
		|| { echo 'The picture is not of the dashboard in $(DASHBOARD_JSON): run "make dashboard-picture" and commit the result.' >&2; exit 1; }
	@set -o pipefail; $(BENCH_PICTURE) | diff -u docs/benchmarks.svg - \
		|| { echo 'The picture is not of the figures in docs/benchmarks.json: run "make bench-picture" and commit the result.' >&2; exit 1; }
	@$(TOOL) golangci-lint fmt --diff || { echo 'Files are not formatted: run "make fmt".' >&2; exit 1; }
	@(for module in . $(MONITORING) $(IMAGE) $(BENCHCHART); do (cd $$module && go mod tidy -diff) || exit 1; done) || { echo 'go.mod or go.sum is not current: run "go mod tidy".' >&2; exit 1; }
