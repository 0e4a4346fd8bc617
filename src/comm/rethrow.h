// A rank's error on its way to whoever shows it: the same kind, with other words.
#pragma once
#include <exception>

#include "comm/error.h"

namespace lockstep {

// Within a handler: throws what is being handled once more, of the same kind (UserError with its code, CommError,
// ProgramError; all others as EnvironmentError), with words(what) in the place of its words.
template <class Words>
[[noreturn]] void rethrow_with(const Words& words) {
  try {
    throw;
  } catch (const UserError& error) {
    throw UserError(error.code(), words(error.what()), "");
  } catch (const CommError& error) {
    throw CommError(words(error.what()), error.secondary());
  } catch (const ProgramError& error) {
    throw ProgramError(words(error.what()));
  } catch (const std::exception& error) {
    throw EnvironmentError(words(error.what()));
  } catch (...) {
    throw EnvironmentError(words("an exception without words"));
  }
}

}  // namespace lockstep
