package check_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// cluster is what kubectl apply -k would send.
type cluster struct {
	pods       map[string]core.PodTemplateSpec // by the name of what makes them
	replicas   map[string]int32
	services   []core.Service
	settings   map[string]map[string]string // by the name of the ConfigMap
	budgets    []policy.PodDisruptionBudget
	policies   []networking.NetworkPolicy
	namespaces []core.Namespace
	accounts   []core.ServiceAccount
}

// render builds the kustomization and decodes each object strictly: a field that Kubernetes does not know is an error.
func render(t *testing.T) *cluster {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+"/deploy/kubernetes")
	require.NoError(t, err)
	c := &cluster{pods: map[string]core.PodTemplateSpec{}, replicas: map[string]int32{}, settings: map[string]map[string]string{}}
	for _, o := range objects.Resources() {
		text, err := o.AsYAML()
		require.NoError(t, err)
		into := func(v any) {
			require.NoError(t, yaml.UnmarshalStrict(text, v), "%s %s", o.GetKind(), o.GetName())
		}
		switch at := o.GetApiVersion() + " " + o.GetKind(); at {
		case "apps/v1 Deployment":
			var d apps.Deployment
			into(&d)
			c.pods[d.Name], c.replicas[d.Name] = d.Spec.Template, *d.Spec.Replicas
			require.Subset(t, d.Spec.Template.Labels, d.Spec.Selector.MatchLabels)
		case "batch/v1 CronJob":
			var j batch.CronJob
			into(&j)
			c.pods[j.Name] = j.Spec.JobTemplate.Spec.Template
		case "v1 Service":
			c.services = append(c.services, core.Service{})
			into(&c.services[len(c.services)-1])
		case "v1 ConfigMap":
			var m core.ConfigMap
			into(&m)
			c.settings[m.Name] = m.Data
		case "policy/v1 PodDisruptionBudget":
			c.budgets = append(c.budgets, policy.PodDisruptionBudget{})
			into(&c.budgets[len(c.budgets)-1])
		case "networking.k8s.io/v1 NetworkPolicy":
			c.policies = append(c.policies, networking.NetworkPolicy{})
			into(&c.policies[len(c.policies)-1])
		case "v1 Namespace":
			c.namespaces = append(c.namespaces, core.Namespace{})
			into(&c.namespaces[len(c.namespaces)-1])
		case "v1 ServiceAccount":
			c.accounts = append(c.accounts, core.ServiceAccount{})
			into(&c.accounts[len(c.accounts)-1])
		default:
			t.Fatalf("no type for %s", at)
		}
	}
	return c
}

func (c *cluster) names() []string { return slices.Sorted(maps.Keys(c.pods)) }

func TestKubernetes_ProcessesStartWithWhatTheyAreGiven(t *testing.T) {
	t.Parallel()
	c := render(t)
	require.Equal(t, []string{"duebox-api", "duebox-reconcile", "duebox-worker"}, c.names())
	howTo := strings.ReplaceAll(read(t, "deploy/kubernetes/kustomization.yaml"), "\\\n#", "")
	for _, name := range c.names() {
		pod := c.pods[name].Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			at := name + "/" + container.Name
			understood(t, container.Args...)
			require.Empty(t, container.Command, "the image's entry point: %s", at)
			require.Equal(t, "ghcr.io/duebox/duebox:latest", container.Image, at)
			vars := map[string]string{}
			for _, from := range container.EnvFrom {
				data, found := c.settings[from.ConfigMapRef.Name]
				require.True(t, found, at)
				maps.Copy(vars, data)
			}
			for _, v := range container.Env {
				vars[v.Name] = v.Value
				if strings.HasSuffix(v.Name, "_FILE") {
					secret, key := mounted(t, pod, container, v.Value)
					require.Regexp(t, `create secret generic `+secret+` .*--from-literal=`+key+`=`, howTo, at)
				}
			}
			fits(t, at, vars, needs(container.Args[0])...)
		}
	}
}

// mounted finds the secret, and its key, that a container sees at a path.
func mounted(t *testing.T, pod core.PodSpec, container core.Container, at string) (secret, key string) {
	t.Helper()
	for _, mount := range container.VolumeMounts {
		if mount.MountPath != path.Dir(at) {
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name != mount.Name {
				continue
			}
			require.NotNil(t, v.Secret, at)
			require.True(t, mount.ReadOnly, at)
			if len(v.Secret.Items) == 0 {
				return v.Secret.SecretName, path.Base(at)
			}
			for _, item := range v.Secret.Items {
				if item.Path == path.Base(at) {
					return v.Secret.SecretName, item.Key
				}
			}
		}
	}
	t.Fatalf("%s: nothing is mounted at %s", container.Name, at)
	return "", ""
}

func TestKubernetes_ProbesAskWhatIsServed(t *testing.T) {
	t.Parallel()
	c := render(t)
	for name, expected := range map[string]struct{ variable, source, route string }{
		"duebox-api":    {"HTTP_ADDR", "api/routes.go", `e.GET("%s"`},
		"duebox-worker": {"WORKER_HTTP_ADDR", "worker/http.go", `"GET %s"`},
	} {
		container := c.pods[name].Spec.Containers[0]
		require.Len(t, container.Ports, 1)
		address := slices.IndexFunc(container.Env, func(v core.EnvVar) bool { return v.Name == expected.variable })
		require.GreaterOrEqual(t, address, 0)
		_, port, _ := strings.Cut(container.Env[address].Value, ":")
		require.Equal(t, port, yamlOf(t, container.Ports[0].ContainerPort))
		for probe, route := range map[*core.Probe]string{container.LivenessProbe: "/healthz", container.ReadinessProbe: "/readyz"} {
			require.Equal(t, route, probe.HTTPGet.Path)
			require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
			require.Contains(t, read(t, expected.source), strings.Replace(expected.route, "%s", route, 1))
		}
		require.Contains(t, read(t, "Dockerfile"), "EXPOSE 8080 9090")
	}
}

func yamlOf(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// What Pod Security calls restricted, and a root file system that nobody can write to.
func TestKubernetes_PodsHaveNoRights(t *testing.T) {
	t.Parallel()
	c := render(t)
	require.Equal(t, "restricted", c.namespaces[0].Labels["pod-security.kubernetes.io/enforce"])
	require.Contains(t, read(t, "Dockerfile"), "\nUSER 65532:65532\n")
	require.Contains(t, read(t, "deploy/release/Dockerfile"), "\nUSER 65532:65532\n")
	for name, template := range c.pods {
		pod := template.Spec
		require.False(t, *pod.AutomountServiceAccountToken, name)
		require.Equal(t, c.accounts[0].Name, pod.ServiceAccountName, name)
		require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
		require.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser, name)
		require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, name)
			require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, name)
			require.Equal(t, []core.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, name)
			require.False(t, container.Resources.Limits.Memory().IsZero(), name)
			require.False(t, container.Resources.Requests.Cpu().IsZero(), name)
			require.False(t, container.Resources.Requests.Memory().IsZero(), name)
		}
	}
}

func TestKubernetes_PodsMayFinishWhatTheyAreAt(t *testing.T) {
	t.Parallel()
	c := render(t)
	for name := range c.replicas {
		pod := c.pods[name].Spec
		drain, err := time.ParseDuration(c.settings[pod.Containers[0].EnvFrom[0].ConfigMapRef.Name]["DRAIN_TIMEOUT"])
		require.NoError(t, err)
		if l := pod.Containers[0].Lifecycle; l != nil {
			drain += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
		}
		require.Greater(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, drain+5*time.Second, name)
	}
}

// Services, budgets and policies select pods that there are, and name ports that those have.
func TestKubernetes_SelectorsFindPods(t *testing.T) {
	t.Parallel()
	c := render(t)
	selected := func(labels map[string]string) (names []string) {
		for _, name := range c.names() {
			matches := true
			for key, value := range labels {
				matches = matches && c.pods[name].Labels[key] == value
			}
			if matches {
				names = append(names, name)
			}
		}
		return names
	}
	hasPort := func(workload, port string) bool {
		return slices.ContainsFunc(c.pods[workload].Spec.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == port })
	}
	for _, s := range c.services {
		require.Equal(t, []string{s.Name}, selected(s.Spec.Selector))
		for _, p := range s.Spec.Ports {
			require.True(t, hasPort(s.Name, p.TargetPort.String()), s.Name)
		}
	}
	for _, b := range c.budgets {
		require.Equal(t, []string{b.Name}, selected(b.Spec.Selector.MatchLabels))
		require.Less(t, b.Spec.MinAvailable.IntVal, c.replicas[b.Name], "a node can be drained")
	}
	require.Len(t, c.budgets, len(c.replicas))
	everything := c.policies[slices.IndexFunc(c.policies, func(p networking.NetworkPolicy) bool { return p.Name == "duebox-nothing-else" })]
	require.Equal(t, c.names(), selected(everything.Spec.PodSelector.MatchLabels))
	require.Len(t, everything.Spec.PolicyTypes, 2)
	for _, p := range c.policies {
		names := selected(p.Spec.PodSelector.MatchLabels)
		require.NotEmpty(t, names, p.Name)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				require.True(t, hasPort(names[0], port.Port.String()), p.Name)
			}
		}
	}
}
