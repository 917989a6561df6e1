package check_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// recipe is the part of .goreleaser.yaml that names something of ours. The whole is checked by goreleaser check.
type recipe struct {
	Builds []struct {
		Main    string   `json:"main"`
		LDFlags []string `json:"ldflags"`
	} `json:"builds"`
	Archives []struct {
		Files []string `json:"files"`
	} `json:"archives"`
	Packages []struct {
		BinDir   string `json:"bindir"`
		Contents []struct {
			Source      string `json:"src"`
			Destination string `json:"dst"`
		} `json:"contents"`
	} `json:"nfpms"`
	Images []struct {
		Dockerfile string   `json:"dockerfile"`
		Images     []string `json:"images"`
		Platforms  []string `json:"platforms"`
		SBOM       string   `json:"sbom"`
	} `json:"dockers_v2"`
	SBOMs []struct {
		Artifacts string `json:"artifacts"`
	} `json:"sboms"`
	Checksum struct {
		Algorithm string `json:"algorithm"`
	} `json:"checksum"`
}

func TestRelease_NamesWhatThereIs(t *testing.T) {
	t.Parallel()
	var r recipe
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &r))
	exists := func(pattern string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, "there is no %s", pattern)
	}
	exists(filepath.Join(r.Builds[0].Main, "main.go"))
	variable := regexp.MustCompile(`-X main\.(\w+)=`).FindStringSubmatch(r.Builds[0].LDFlags[0])
	require.Regexp(t, `(?m)^var `+variable[1]+` string$`, read(t, "cmd/duebox/wiring.go"))
	for _, pattern := range r.Archives[0].Files {
		exists(pattern)
	}
	packed := map[string]string{}
	for _, c := range r.Packages[0].Contents {
		exists(c.Source)
		packed[filepath.Base(c.Source)] = c.Destination
	}
	for name, unit := range units(t) {
		require.Equal(t, "/usr/lib/systemd/system/"+name, packed[name])
		if start := unit["ExecStart"]; start != nil {
			require.True(t, strings.HasPrefix(start[0], r.Packages[0].BinDir+"/duebox "), name)
		}
	}
	exists(r.Images[0].Dockerfile)
	require.Contains(t, read(t, "deploy/kubernetes/kustomization.yaml"), "newName: "+r.Images[0].Images[0]+"\n")
	require.True(t, slices.Contains(r.Images[0].Platforms, "linux/arm64"))
	require.Equal(t, "true", r.Images[0].SBOM)
	require.Equal(t, "archive", r.SBOMs[0].Artifacts)
	require.Equal(t, "sha256", r.Checksum.Algorithm)
}

// The variables of docker-compose.yml, whose secrets are no files.
func TestCompose_NamesSettingsThatThereAre(t *testing.T) {
	t.Parallel()
	var file struct {
		Services map[string]struct {
			Command     []string          `json:"command"`
			Environment map[string]string `json:"environment"`
		} `json:"services"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file))
	known, seen := variables(), 0
	for name, service := range file.Services {
		if len(service.Command) == 0 {
			continue // not ours
		}
		for variable := range service.Environment {
			require.Contains(t, known, variable, name)
			seen++
		}
	}
	require.Positive(t, seen)
}
