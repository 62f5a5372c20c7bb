package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func pointer(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }

// burn DURATION THREADS: computes on so many threads for so long, and prints
// how many rounds that were.
func burn(a []string) {
	d, err := time.ParseDuration(a[0])
	fail(err)
	n, _ := strconv.Atoi(a[1])
	end := time.Now().Add(d)
	sum := make(chan int, n)
	for range n {
		go func() {
			rounds := 0
			for x := 1; time.Now().Before(end); rounds++ {
				for range 10000 {
					x = x*1664525 + 1013904223
				}
			}
			sum <- rounds
		}()
	}
	total := 0
	for range n {
		total += <-sum
	}
	fmt.Println(total)
}

// fill FILE: writes until it is refused; prints the bytes and the reason.
func fill(a []string) {
	f, err := os.Create(a[0])
	fail(err)
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i)
	}
	total := 0
	for {
		n, err := f.Write(b)
		total += n
		if err != nil {
			fmt.Println(total, errors.Is(err, syscall.ENOSPC), err)
			return
		}
	}
}

// touch MIB: takes so much memory, and writes to every page of it.
func touch(a []string) {
	n, _ := strconv.Atoi(a[0])
	b, err := syscall.Mmap(-1, 0, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	fail(err)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Println("touched")
}

// forks N [UID]: starts up to N processes that wait, as that user, prints how
// many it could and why no more, and ends them.
func forks(a []string) {
	max, _ := strconv.Atoi(a[0])
	if uid, _ := strconv.Atoi(a[1]); uid > 0 {
		fail(syscall.Setuid(uid))
	}
	var pids []int
	var err error
	for len(pids) < max {
		var pid int
		if pid, err = syscall.ForkExec("/agent", []string{"agent", "sleep", "1h"}, &syscall.ProcAttr{}); err != nil {
			break
		}
		pids = append(pids, pid)
	}
	fmt.Println(len(pids), errText(err))
	for _, p := range pids {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}
