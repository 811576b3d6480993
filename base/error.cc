// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

namespace sluice {

std::string_view ErrorText(Error error) {
  switch (error) {
    case Error::kOk:
      return "success";
#define SLUICE_ERROR_TEXT(name, text) \
  case Error::name:                   \
    return text;
      SLUICE_ERRORS(SLUICE_ERROR_TEXT)
#undef SLUICE_ERROR_TEXT
  }
  return "unknown error";
}

}  // namespace sluice
