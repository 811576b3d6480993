// SPDX-License-Identifier: Apache-2.0
#include "block/inline_completion.h"

#include <deque>
#include <utility>

namespace sluice {
namespace {

using Completions = std::deque<std::pair<IoRequest*, Error>>;
thread_local Completions* running = nullptr;  // set while this thread is inside CompleteInline

}  // namespace

void CompleteInline(IoRequest* request, Error error) {
  if (running != nullptr) {
    running->emplace_back(request, error);
    return;
  }
  Completions queue;
  running = &queue;
  request->Done(error);
  while (!queue.empty()) {
    const auto [next, next_error] = queue.front();
    queue.pop_front();
    next->Done(next_error);
  }
  running = nullptr;
}

}  // namespace sluice
