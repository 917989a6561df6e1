package grammar

import "strings"

// reserved are the reserved words of MySQL 8.0, 8.4 and 9. Those that the grammar takes for names all the same are
// no names in MySQL, unless quoted; we refuse them quoted too, since nobody should need to know which they are.
// PRIMARY and DUAL are left out: the grammar has them as the names of the primary key and of no table.
func reserved() map[string]bool {
	return set(`
accessible add all alter analyze and as asc asensitive before between bigint binary blob both by call cascade case
change char character check collate column condition constraint continue convert create cross cube cume_dist
current_date current_time current_timestamp current_user cursor database databases day_hour day_microsecond day_minute
day_second dec decimal declare default delayed delete dense_rank desc describe deterministic distinct distinctrow div
double drop each else elseif empty enclosed escaped except exists exit explain false fetch first_value float float4
float8 for force foreign from fulltext function generated get grant group grouping groups having high_priority
hour_microsecond hour_minute hour_second if ignore in index infile inner inout insensitive insert int int1 int2 int3 int4
int8 integer intersect interval into io_after_gtids io_before_gtids is iterate join json_table key keys kill lag
last_value lateral lead leading leave left library like limit linear lines load localtime localtimestamp lock long
longblob longtext loop low_priority manual master_bind master_ssl_verify_server_cert match maxvalue mediumblob mediumint
mediumtext middleint minute_microsecond minute_second mod modifies natural not no_write_to_binlog nth_value ntile null
numeric of on optimize optimizer_costs option optionally or order out outer outfile over parallel partition percent_rank
precision procedure purge qualify range rank read reads read_write real recursive references regexp release rename
repeat replace require resignal restrict return revoke right rlike row rows row_number schema schemas second_microsecond
select sensitive separator set show signal smallint spatial specific sql sqlexception sqlstate sqlwarning sql_big_result
sql_calc_found_rows sql_small_result ssl starting stored straight_join system table tablesample terminated then tinyblob
tinyint tinytext to trailing trigger true undo union unique unlock unsigned update usage use using utc_date utc_time
utc_timestamp values varbinary varchar varcharacter varying virtual when where while window with write xor year_month
zerofill`)
}

// mariaFunctions exist in MariaDB and not in MySQL 8, or no more.
func mariaFunctions() map[string]bool {
	return set(`
add_months chr column_add column_check column_create column_delete column_exists column_get column_json column_list
crc32c decode decode_histogram decode_oracle des_decrypt des_encrypt encode encrypt
json_array_intersect json_compact json_detailed json_equals json_exists json_key_value json_loose json_normalize
json_object_filter_keys json_object_to_array json_query kdf lastval lengthb master_gtid_wait median natural_sort_key
nextval old_password password percentile_cont percentile_disc rownum setval sformat spider_bg_direct_sql sys_guid
to_char to_date to_number trim_oracle uuid_v4 uuid_v7 value vec_distance vec_fromtext vec_totext`)
}

// mariaVariables exist in MariaDB and not in MySQL 8, or no more. One of them is the isolation level: MariaDB 10.11
// calls it tx_isolation and MySQL 8 transaction_isolation, so that only SET TRANSACTION is common.
func mariaVariables() map[string]bool {
	return set(`
alter_algorithm analyze_sample_percentage character_set_collations column_compression_threshold
column_compression_zlib_level deadlock_search_depth_long deadlock_search_depth_short deadlock_timeout_long
deadlock_timeout_short expensive_subquery_limit gtid_domain_id gtid_seq_no histogram_size histogram_type
idle_readonly_transaction_timeout idle_transaction_timeout idle_write_transaction_timeout in_predicate_conversion_threshold
in_transaction innodb_snapshot_isolation join_buffer_space_limit join_cache_level last_gtid max_statement_time
note_verbosity optimizer_use_condition_selectivity progress_report_time query_cache_size query_cache_type rowid_merge_buff_size
secure_timestamp skip_parallel_replication skip_replication sql_if_exists storage_engine strict_password_validation
system_versioning_alter_history system_versioning_asof system_versioning_insert_history tx_isolation tx_read_only
use_stat_tables version_malloc_library version_source_revision version_ssl_library wsrep_on`)
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		m[word] = true
	}
	return m
}
