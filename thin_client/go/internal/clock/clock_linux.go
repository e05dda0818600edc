package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// Now is a moment on a clock that goes on while the machine is suspended, as leases do. Go's own
// clock stands still then.
func Now() time.Duration {
	var at syscall.Timespec
	_, _, failed := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0)
	if failed != 0 {
		return sinceStart()
	}
	return time.Duration(at.Nano())
}
