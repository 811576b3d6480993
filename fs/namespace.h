// SPDX-License-Identifier: Apache-2.0
//
// What the operations on names share. Private to fs/.
#ifndef SLUICE_FS_NAMESPACE_H_
#define SLUICE_FS_NAMESPACE_H_

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "block/attempt.h"
#include "fs/directory.h"
#include "fs/filesystem_impl.h"
#include "fs/inode.h"
#include "journal/journal.h"

namespace sluice {

inline bool IsDots(std::string_view name) { return name == "." || name == ".."; }

// kNameTooLong, kInvalid (empty, '/' or NUL in it). "." and ".." pass.
Error CheckName(std::string_view name);

// DT_* of a mode.
inline uint8_t EntryType(uint16_t mode) { return static_cast<uint8_t>(mode >> 12); }

// Whether names may be put into / taken out of the directory. kNotDirectory, kNotFound (it was
// removed), kNotPermitted (immutable; append-only for taking). Its mutex is held.
Error CheckMayAdd(const Inode& directory);
Error CheckMayRemove(const Inode& directory);
// Whether the inode may lose or change a name: kNotPermitted for immutable and append-only ones.
// Its mutex is held.
Error CheckMayUnlink(const Inode& inode);

// The inode that an entry of `parent` names; kCorrupt (reported) if there is none, or if it cannot
// be what the entry says (another type, a directory with another parent). The parent's mutex is
// held, shared at least. Never `parent` itself.
Result<InodeRef> ChildOf(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& parent,
                         const DirectoryEntry& entry);

// Writes an inode back whose mutex is held through InodeLocks.
inline void WriteBackLocked(Handle& handle, Inode* inode, bool data_reachability) {
  inode->mutex.AssertHeld();
  inode->WriteBack(handle, data_reachability);
}

// The directory's times, and its count of names changed by `names`; written back.
void DirectoryChanged(Handle& handle, Inode* directory, Nanoseconds now, int names);

// Under -o sync, -o dirsync or the directory's flags: the caller hears of success only when `tid`
// is durable.
void SyncIfAsked(Filesystem::Impl* fs, Attempt& attempt, const Inode& directory, Tid tid);

}  // namespace sluice

#endif  // SLUICE_FS_NAMESPACE_H_
