package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// Now returns the time of a clock that runs while the machine is suspended, as leases do. Go's own
// monotonic clock does not.
func Now() time.Duration {
	var at syscall.Timespec
	_, _, failed := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0)
	if failed != 0 {
		return sinceStart()
	}
	return time.Duration(at.Nano())
}
