WITH RECURSIVE made_from AS ( -- a month's report, and what it was made from, down to the raw orders
    SELECT 0 AS depth, asset_key, partition_key, materialization_id
    FROM partition_status
    WHERE asset_key = 'shop/month_report' AND partition_values['month'] = '2025-01-01'
    UNION
    SELECT depth + 1, upstream_asset_key, upstream_partition_key, upstream_materialization_id
    FROM made_from JOIN lineage USING (asset_key, partition_key, materialization_id)
)
SELECT repeat('   ', depth - 1) || if(depth > 0, '└─ ', '') || asset_key AS made_from,
       count(*) AS partitions, sum(rows) AS rows, count(DISTINCT run_id) AS made_by_runs
FROM made_from JOIN materializations USING (asset_key, partition_key, materialization_id)
GROUP BY depth, asset_key
ORDER BY depth
