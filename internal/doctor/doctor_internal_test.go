package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]State{
		"10.11.14-MariaDB-0+deb12u2": OK, "10.6.0-MariaDB": OK, "10.5.9-MariaDB": Fail, "11.4.2-MariaDB-log": OK,
		"8.0.36": OK, "9.1.0": OK, "5.7.44-log": Fail, "what": Fail,
	} {
		require.Equal(t, want, versionFinding(version).State, version)
	}
	require.Equal(t, Fail, Worst([]Finding{{State: OK}, {State: Fail}, {State: Warn}}))
	require.Equal(t, Warn, Worst([]Finding{{State: Warn}, {State: OK}}))
	require.Equal(t, OK, Worst(nil))
}

func TestVariables_AreJudged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		finding Finding
		want    State
	}{
		{isolationFinding(variables{"transaction_isolation": "READ-COMMITTED"}), OK},
		{isolationFinding(variables{"tx_isolation": "READ-COMMITTED"}), OK},
		{isolationFinding(variables{"tx_isolation": "REPEATABLE-READ"}), Warn},
		{charsetFinding(variables{"character_set_connection": "utf8mb4", "character_set_client": "utf8mb4"}), OK},
		{charsetFinding(variables{"character_set_connection": "latin1", "character_set_client": "utf8mb4"}), Fail},
		{packetFinding(variables{"max_allowed_packet": "16777216"}), OK},
		{packetFinding(variables{"max_allowed_packet": "1048576"}), Warn},
		{packetFinding(variables{"max_allowed_packet": "1024"}), Fail},
		{connectionsFinding(variables{"max_connections": "151"}, 50), OK},
		{connectionsFinding(variables{"max_connections": "60"}, 50), Warn},
	} {
		require.Equal(t, c.want, c.finding.State, "%v", c.finding)
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		names   []string
		where   string
		isGrant bool
	}{
		"GRANT ALL PRIVILEGES ON *.* TO `root`@`127.0.0.1` IDENTIFIED BY PASSWORD '*X' WITH GRANT OPTION": {[]string{"ALL PRIVILEGES"}, "*", true},
		"GRANT SELECT, INSERT ON `shop`.* TO `a`@`%`":                                                     {[]string{"SELECT", "INSERT"}, "`shop`", true},
		"GRANT SELECT ON `shop`.`orders` TO `a`@`%`":                                                      {nil, "", true},
		"GRANT `writers`@`%` TO `a`@`%`":                                                                  {nil, "", false},
	} {
		names, where, isGrant := parseGrant(line)
		require.Equal(t, want.names, names, line)
		require.Equal(t, want.where, where, line)
		require.Equal(t, want.isGrant, isGrant, line)
	}
	for where, covered := range map[string]bool{
		"*": true, "`shop`": true, "`sho_`": true, "`s%`": true, "`%`": true, "`shop2`": false, "`sho`": false, `sho\_`: false, "`s.op`": false,
	} {
		require.Equal(t, covered, covers(where, "shop"), where)
	}
	require.True(t, covers("`a\\_b`", "a_b"))
	require.False(t, covers("`a\\_b`", "axb"))
}
