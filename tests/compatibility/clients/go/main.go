// A program of franz-go's, as its users would write it: what a test asks it to do, it prints as
// JSON, one object a line. See tests/compatibility/test_go_and_node.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

func main() {
	arguments := os.Args[1:]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	bootstrap, command, topic := arguments[0], arguments[1], arguments[2]
	switch command {
	case "produce":
		produce(ctx, bootstrap, topic, number(arguments[3]))
	case "group":
		readInGroup(ctx, bootstrap, topic, arguments[3], number(arguments[4]))
	case "committed":
		readCommitted(ctx, bootstrap, topic, number(arguments[3]))
	case "transform":
		transform(ctx, bootstrap, topic, arguments[3], arguments[4], number(arguments[5]))
	default:
		log.Fatalf("no such command: %s", command)
	}
}

func produce(ctx context.Context, bootstrap, topic string, count int) {
	client := connect(bootstrap, kgo.DefaultProduceTopic(topic))
	defer client.Close()
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = &kgo.Record{Key: []byte(strconv.Itoa(i)), Value: []byte(strconv.Itoa(i))}
	}
	must(client.ProduceSync(ctx, records...).FirstErr())
	say(map[string]any{"produced": count})
}

// Joins a group and prints each record as it comes; ends after `count`, or when it is killed.
func readInGroup(ctx context.Context, bootstrap, topic, group string, count int) {
	client := connect(bootstrap,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	defer client.Close()
	for read := 0; read < count; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			say(map[string]any{"partition": record.Partition, "value": string(record.Value)})
			read++
		})
		must(client.CommitUncommittedOffsets(ctx))
	}
}

func readCommitted(ctx context.Context, bootstrap, topic string, count int) {
	client := connect(bootstrap, kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	for read := 0; read < count; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			say(map[string]any{"value": string(record.Value)})
			read++
		})
	}
}

// Consume, transform, produce: offsets and output in one transaction. The first one is aborted, so
// that what it had written is there and must not be seen.
func transform(ctx context.Context, bootstrap, from, to, group string, count int) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.DefaultProduceTopic(to),
		kgo.TransactionalID(group+"-transform"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	must(err)
	defer session.Close()
	aborted := 0
	for committed := 0; committed < count; {
		fetches := session.PollFetches(ctx)
		must(fetches.Err())
		must(session.Begin())
		batch := 0
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: append([]byte("go "), record.Value...)},
				func(_ *kgo.Record, err error) { must(err) })
			batch++
		})
		if aborted == 0 {
			must(session.Client().Flush(ctx))
			_, err := session.End(ctx, kgo.TryAbort)
			must(err)
			aborted = batch
			continue
		}
		done, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if done {
			committed += batch
		}
	}
	say(map[string]any{"transformed": count, "aborted": aborted})
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
	must(err)
	return client
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func say(what any) {
	line, err := json.Marshal(what)
	must(err)
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
