// SPDX-License-Identifier: Apache-2.0
//
// Completion of requests on the submitter's own thread, for devices that are done as soon as they
// are asked. A Done that submits the next request of a long chain must not deepen the stack with
// each link, so completions that arise inside a Done are queued and run after it.
#ifndef SLUICE_BLOCK_INLINE_COMPLETION_H_
#define SLUICE_BLOCK_INLINE_COMPLETION_H_

#include "base/error.h"
#include "block/device.h"

namespace sluice {

// Calls request->Done(error) on this thread: now, or, when this thread is inside a Done that was
// called from here, right after that one returns. No lock may be held.
void CompleteInline(IoRequest* request, Error error);

}  // namespace sluice

#endif  // SLUICE_BLOCK_INLINE_COMPLETION_H_
