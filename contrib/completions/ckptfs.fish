# SPDX-License-Identifier: Apache-2.0
# fish completion of ckptfs. All knowledge is in `ckptfs complete`.

function __ckptfs_offers
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    $program complete $words (commandline -ct) 2>/dev/null
end

complete -c ckptfs -a '(__ckptfs_offers)'
