// Command curtail-peer-franz-go is the load of "curtail perf", with franz-go.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	args, err := parse(arguments)
	if err != nil {
		return err
	}
	if args.tool == groupTool {
		return groupConsume(args)
	}
	if args.tool == driveTool {
		return drive(args)
	}
	tools := map[string]func(*options) (*report, error){
		"produce": produce, "consume": consume, "e2e": endToEnd, "load": load, followTool: follow,
	}
	result, err := tools[args.tool](args)
	if err != nil {
		return err
	}
	fmt.Println(result.summary())
	if args.json == "" {
		return nil
	}
	return os.WriteFile(args.json, []byte(result.json()+"\n"), 0o644)
}
